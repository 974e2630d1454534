//! Tests on a simulated machine, with every kind of failure.

mod advice;
mod crash;
mod fake;
mod hostile;
mod putting_back;
mod random;
