mod abilities;
mod audit;
mod export;
