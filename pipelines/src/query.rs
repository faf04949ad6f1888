//! Query: writes tasks for crawled files.
