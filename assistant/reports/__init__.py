"""Write reports on one job, on a day, or on any span of time.

`contents` decides which sections a report has, `tables` and `charts` what is in them, and `html`
and `markdown` how it looks:

material = of_job(daemon, 7)
report = compose(material, write(material.facts))
save(report, Path("report.html"))
"""
