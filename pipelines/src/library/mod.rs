//! The task library: templates, slots, expert solutions, audit.
