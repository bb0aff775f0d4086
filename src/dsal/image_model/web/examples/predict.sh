#!/bin/sh
# Ask a server: pip install 'dsal-learn[serve]', put the model file into a folder, run `dsal serve --models FOLDER`,
# then MODEL=name-of-the-file sh examples/predict.sh PHOTO...
for photo in "$@"; do
  curl -sf "${URL:-http://127.0.0.1:8000}/api/models/${MODEL:?the name of the model file, without .dsal}/predict" -F "images=@$photo"
  echo
done
