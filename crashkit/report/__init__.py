"""The report in each of its formats: JSON, HTML, text and Markdown."""
