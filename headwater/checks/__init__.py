"""What the templates of a deployment promise and no ready tool checks. Stays on the laptop."""
