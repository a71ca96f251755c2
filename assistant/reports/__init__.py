"""Reports: on one job, on a day, on any span. `material` asks the daemon, the writer writes, `compose` puts together, `save` writes files.

material = of_job(daemon, 7)
report = compose(material, write(material.facts, None))
save(report, Path("report.html"))
"""
