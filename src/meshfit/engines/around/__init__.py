"""Jobs of schedulers around a script that starts an engine on one host."""
