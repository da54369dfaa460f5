"""A report for people and programs: terminal, JSON, files of CSV and Parquet, patches, one page of HTML."""
