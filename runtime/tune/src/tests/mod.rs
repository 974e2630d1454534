//! Tuning a machine that is a directory, with everything going wrong that can.

mod advice;
mod crash;
mod fake;
mod hostile;
mod putting_back;
mod random;
