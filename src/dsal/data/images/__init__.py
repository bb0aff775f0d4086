"""Images in files, folders and archives: listed, decoded, cropped."""
