//! stub
#![allow(missing_docs, unused_variables)]
use super::{Answer, CallInput, Progress};
use crate::config::SimulatedDefinition;
use onejob_core::Failure;
pub struct SimulatedProvider {}
pub struct PreparedCall {}
impl SimulatedProvider {
    pub fn open(name: &str, definition: &SimulatedDefinition) -> Result<SimulatedProvider, String> {
        todo!()
    }
    pub fn prepare(&self, call: &CallInput) -> Result<PreparedCall, Failure> {
        todo!()
    }
    pub async fn send(&self, call: PreparedCall, progress: &Progress) -> Answer {
        todo!()
    }
}
