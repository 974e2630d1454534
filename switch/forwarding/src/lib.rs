//! What a switch does with a frame, as functions of (state, now, input): by what it has learned ([`learning`]), or by
//! OpenFlow's tables ([`openflow`]), whose outputs NORMAL and FLOOD take the frame through the steps of the former.

pub mod learning;
pub mod openflow;
