"""An environment's configuration, and what its templates promise. Stays on the laptop."""
