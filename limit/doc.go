// SPDX-License-Identifier: MIT

// Package limit holds what limiting means: the algorithms, and the words in
// which a store is asked to apply them.
//
// An [Algorithm] turns a [Limit] (so many requests in so long) into a [Meter].
// A Meter is pure arithmetic: given the [State] of one actor and a time it says
// what becomes of a request ([Meter.Peek]) and how the state changes
// ([Meter.Take], [Meter.Refund]). It holds no clock, no lock and no memory of its
// own, and it computes in whole numbers only.
//
// A [Store] keeps the states. It is given all the [Charge] values of a request
// at once and applies either all of them or none. Package memstore is the store
// in this process; package storetest judges any other.
//
// # Time
//
// A moment is an int64: whole microseconds since the Unix epoch. A span is an
// int64 of whole microseconds. Microseconds, because the same arithmetic must
// come out the same in Lua, whose numbers are doubles: nanoseconds since 1970
// do not fit one exactly, microseconds do until the year 2255.
//
// Meters accept moments that go backwards. A state never moves back with them:
// the later of the moment given and the moment remembered counts.
package limit
