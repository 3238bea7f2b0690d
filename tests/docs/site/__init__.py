"""The documentation site: the Markdown of this project, staged for Sphinx and built to HTML."""
