//! stub
#![allow(missing_docs, unused_variables)]
use super::{Answer, CallInput, Progress};
use crate::config::HttpDefinition;
use onejob_core::Failure;
pub struct HttpProvider {}
pub struct PreparedRequest {}
impl HttpProvider {
    pub fn open(name: &str, definition: &HttpDefinition) -> Result<HttpProvider, String> {
        todo!()
    }
    pub fn prepare(&self, call: &CallInput) -> Result<PreparedRequest, Failure> {
        todo!()
    }
    pub async fn send(&self, request: PreparedRequest, progress: &Progress) -> Answer {
        todo!()
    }
}
