"""Sphinx's settings for the site. Nothing in the site comes from another host."""

project = "airflow-hivelock"
html_title = "airflow-hivelock"
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "index"
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

myst_heading_anchors = 6
nitpicky = True
highlight_language = "text"
smartquotes = False  # quotes and dashes of options are to be copied
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
