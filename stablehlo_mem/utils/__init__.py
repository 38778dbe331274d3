"""Small tools that know nothing of programs: units of bytes, progress, files, garbage collection."""
