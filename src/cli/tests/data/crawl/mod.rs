mod broken;
mod hub;
mod init;
mod pandas;
mod sources;
