//! The mover on the real kernel, its examples, and a program that depends on it.

mod consumer;
mod examples;
mod mounted;
mod pairs;
