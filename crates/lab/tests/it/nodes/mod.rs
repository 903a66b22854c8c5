//! What many nodes must show: real processes on one database, under load, while something breaks. Each
//! story ends with an audit: nothing acknowledged is lost, each job has one result, and the provider, which
//! no node knows from inside, was asked once.

mod kill;
mod restart;
mod standby;
mod pause;
mod deaf;
mod races;
