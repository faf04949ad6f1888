//! `pybench studio`: runs and datasets in the browser (docs/studio.md).
//!
//! | module | content |
//! | --- | --- |
//! | [`record`] | a trajectory, attempt or row, as the index keeps it |
//! | [`evaluation`] | the attempts of an evaluation, as records |
//! | [`row`] | its line in the list |
//! | [`view`] | its page: turns, outputs, files, verdict |
//! | [`align`] | two trajectories side by side: what differs in each turn |
//! | [`divergences`] | where pairs of trajectories diverge, kept for their other pages |
//! | [`compare`] | two runs on the same tasks: what each solves |
//! | [`review`] | decisions of people, in the journal of the run; agreement |
//! | [`chat`] | conversations with a model and a live interpreter |
//! | [`model_choice`] | the models that people choose for conversations and edits |
//! | [`interpreters`] | the interpreters of edits and conversations |
//! | [`shared_models`] | the models of conversations and edits; few in memory, each shared |
//! | [`edit`] | a turn of a trajectory edited, run again, checked and saved |
//! | [`editable`] | which trajectories can be edited, and why others cannot |
//! | [`saved_edits`] | edited trajectories in the journal of the run |
//! | [`file_page`] | a part of a file: rows of a table, text, a waveform, bytes |
//! | [`file_answers`] | answers that show files; HTML in a frame that may do nothing |
//! | [`file_types`] | which files browsers may show, and as what |
//! | [`search`] | what a person types, as a condition of SQLite's full-text search |
//! | [`index`] | the trajectories of a source in SQLite: pages, filters, search |
//! | [`runs`] | the list of runs: state, counts, cost |
//! | [`status`] | how far a run is: stages, throughput, cost, failures by kind |
//! | [`prices`] | the prices of the models of a run |
//! | [`task_review`] | decisions of people on tasks before they are solved |
//! | [`recipe_view`] | the recipe of a run, and what it and that of another run differ in |
//! | [`results`] | leaderboards, learning curves, dataset statistics |
//! | [`sources`] | what is open, and its index |
//! | [`remote`] | datasets and logs of the Hub and of S3, downloaded |
//! | [`watch`] | what pages follow: one reader, however many follow |
//! | [`live`] | the list of runs and the status of one, as server-sent events |
//! | [`access`] | who may ask: the token of the opening link, then a cookie |
//! | [`own_address`] | the data of each page at the page's own address |
//! | [`assets`] | the web app |
//! | [`export`] | a site for a static host: leaderboards, task pages, trajectories |
//! | [`desktop`] | the browser of the desktop |
//! | [`handlers`] | what the routes share |
//! | [`api`] | the routes |
//! | [`command`] | the arguments |

mod access;
mod align;
mod api;
mod assets;
mod chat;
pub mod command;
mod compare;
mod desktop;
mod divergences;
mod edit;
mod editable;
mod evaluation;
mod export;
mod file_answers;
mod file_page;
mod file_types;
mod handlers;
mod index;
mod interpreters;
mod live;
mod model_choice;
mod own_address;
mod prices;
mod recipe_view;
mod record;
mod remote;
mod results;
mod review;
mod row;
mod runs;
mod saved_edits;
mod search;
mod shared_models;
mod sources;
mod status;
mod task_review;
#[cfg(test)]
mod types;
mod view;
mod watch;
