"""Recordings of real hardware, importable as iosim.recordings; each says what, when and how."""
