//! The mistakes of Envoy's configuration: all of all files.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::yaml::Place;

/// A mistake of a file of Envoy's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    file: Arc<Path>,
    /// `None` for a mistake about the whole file.
    place: Option<Place>,
    message: String,
}

/// The mistakes of a file, in the order of reading.
#[derive(Debug)]
pub(super) struct Mistakes {
    file: Arc<Path>,
    list: Vec<Mistake>,
}

impl Mistakes {
    pub(super) fn new(file: Arc<Path>) -> Self {
        Self { file, list: Vec::new() }
    }

    pub(super) fn add(&mut self, place: Place, message: impl Into<String>) {
        self.list.push(Mistake { file: Arc::clone(&self.file), place: Some(place), message: message.into() });
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn into_list(self) -> Vec<Mistake> {
        self.list
    }
}

impl Mistake {
    /// A mistake about a whole file or directory.
    pub(super) fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Self { file: file.into(), place: None, message: message.into() }
    }

    /// A mistake at a place of a file.
    pub(super) fn at(file: Arc<Path>, place: Place, message: impl Into<String>) -> Self {
        Self { file, place: Some(place), message: message.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, message) = (self.file.display(), &self.message);
        match self.place {
            Some(place) => write!(f, "{file}:{place}: {message}"),
            None => write!(f, "{file}: {message}"),
        }
    }
}
