mod broken;
mod hub;
mod pandas;
mod sources;
