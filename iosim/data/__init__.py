"""Data files: machine presets."""
