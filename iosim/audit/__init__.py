"""What a profiler saw, set beside what was predicted: a table of bytes by level, explained."""
