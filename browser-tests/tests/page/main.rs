//! Tests of the page of `flash-sale`: Chromium, a process of the sale and a Redis server of each test.

mod chromium;
mod sale;
mod view;
mod numbers;
mod states;
mod button;
mod stream;
mod layout;
mod images;
