"""What a program is, how others are derived from it, and how it is made again."""
