//! Lying providers: servers that speak a chat API and are wrong in one way each, for which there is a check
//! that must say so. An honest one, of the same parts, must pass.
//!
//! A request goes the way that it goes at a real server: messages, chat template, tokens, window, model, text,
//! limit, answer. A lie changes one step, and what follows from it follows by itself.

pub mod lie;
pub mod catalogue;
pub mod sight;
mod model;
mod server;
mod template;
mod tokens;

pub use lie::Lie;
pub use server::Liar;
