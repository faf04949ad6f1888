//! Crawl: gathers files from sources and profiles them.
