"""From a job file to a launch: read, prepare, judge, show, send."""
