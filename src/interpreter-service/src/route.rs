//! A route: how it is reached, who may use it, and what goes in and out.

use std::sync::Arc;

use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::Service;
use super::guard::Access;

/// Generates the schema of a type.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// The body of a request or response.
#[derive(Clone, Copy)]
pub(super) enum Content {
    Nothing,
    Json(Describe),
    /// Bytes with a media type.
    Raw(&'static str),
}

pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) tag: &'static str,
    pub(super) access: Access,
    pub(super) summary: &'static str,
    pub(super) query: Option<Describe>,
    pub(super) takes: Content,
    pub(super) status: u16,
    pub(super) gives: Content,
    pub(super) handler: MethodRouter<Arc<Service>>,
}

pub(super) fn describe<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl Route {
    pub(super) fn new(
        (method, path): (&'static str, &'static str),
        summary: &'static str,
        handler: MethodRouter<Arc<Service>>,
    ) -> Self {
        let (tag, access) = match path {
            "/execute" => ("codeact", Access::Either),
            path if path.starts_with("/v1/") || path == "/openapi.json" => {
                ("sessions", Access::Client)
            }
            path if path.contains("/sandboxes") => ("e2b", Access::Client),
            _ => ("e2b", Access::Sandbox),
        };
        Self {
            method,
            path,
            tag,
            access,
            summary,
            query: None,
            takes: Content::Nothing,
            status: 204,
            gives: Content::Nothing,
            handler,
        }
    }

    pub(super) fn asks<T: JsonSchema>(mut self) -> Self {
        self.query = Some(describe::<T>);
        self
    }

    pub(super) fn takes<T: JsonSchema>(mut self) -> Self {
        self.takes = Content::Json(describe::<T>);
        self
    }

    pub(super) fn takes_raw(mut self) -> Self {
        self.takes = Content::Raw("application/octet-stream");
        self
    }

    pub(super) fn gives<T: JsonSchema>(mut self, status: u16) -> Self {
        (self.status, self.gives) = (status, Content::Json(describe::<T>));
        self
    }

    pub(super) fn gives_raw(mut self, kind: &'static str) -> Self {
        (self.status, self.gives) = (200, Content::Raw(kind));
        self
    }

    pub(super) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}
