//! What only the store of many nodes must show: its schema, its plans, its walls, its nodes, and what it
//! does when the database or the network fails.

mod schema;
mod plans;
mod walls;
mod gauges;
mod nodes;
mod races;
mod failures;
mod tls;
mod within;
mod doctor;
mod certificates;
