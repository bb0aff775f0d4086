"""What the routes call: models, snapshots, one writer, threads that run backbones."""
