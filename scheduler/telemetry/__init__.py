"""From readings to snapshots, history, alerts and the idle decision."""
