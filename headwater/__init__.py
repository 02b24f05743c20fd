"""Headwater keeps an Apache Hudi lake on S3 in step with operational databases."""
