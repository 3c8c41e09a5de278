"""Files that describe servers: a serving job, and files of engines that start one."""
