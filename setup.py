"""Map the folders of this repository to the packages below `gpudeck`; pyproject.toml has the rest.

A checkout keeps its rooms at the top (`app`, `accel`, ...), and they are imported as `gpudeck.app`,
`gpudeck.accel`, ... setuptools finds packages only under the names of their folders.
"""

from setuptools import find_packages, setup

ROOMS = ("app", "accel", "assistant", "scheduler", "language")
NOT_SHIPPED = ("assistant.training*",)  # how the assistant's models were made
NOT_READ = ("README.md",)  # where the fonts are from, and how the reader was made and measured
FILES = {
    # data that lies beside the code
    "": ["py.typed", "*.sql", "*.txt", "catalogues/*.po", "measured/*", "*.cu"],
    "gpudeck.app.web": ["static/*"],
    "gpudeck.assets": [
        "*.gz",
        "fonts/*",
        "grafana/*",
        "icons/*",
        "desktop/*",
        "rwkv7-*/*",
        "request-reader/*",
    ],
    # what the assistant searches
    "gpudeck.docs": ["commands.md", "settings.md", "manual/*.md"],
}

packages = [p for p in find_packages(exclude=NOT_SHIPPED) if p.split(".")[0] in ROOMS]
setup(
    packages=["gpudeck", "gpudeck.assets", "gpudeck.docs", *(f"gpudeck.{p}" for p in packages)],
    package_dir={
        "gpudeck": "gpudeck",
        **{f"gpudeck.{name}": name for name in (*ROOMS, "assets", "docs")},
    },
    package_data=FILES,
    exclude_package_data={"gpudeck.assets": [f"*/{name}" for name in NOT_READ]},
    data_files=[("share/man/man1", ["docs/gpudeck.1"])],
)
