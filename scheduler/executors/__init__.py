"""Where jobs run: this machine, Ray and Slurm."""
