"""What a deployment is made of: its images by digest, its bill of materials."""
