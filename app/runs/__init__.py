"""What runs measured over their steps: curves, and a table of their last values. Free of Qt."""
