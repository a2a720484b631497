"""Rules by which functions of uncertain states are approximated by affine ones."""
