"""The forms that engines' files are written in, read without running them: settings with their lines."""
