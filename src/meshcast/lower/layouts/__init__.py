"""In which order the dimensions of values lie in memory, and the transposes where two orders meet."""
