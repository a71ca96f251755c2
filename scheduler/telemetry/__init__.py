"""Turn readings into snapshots, history, alerts and the idle decision."""
