// SPDX-License-Identifier: MIT

// Package limit defines the algorithms of limits, and the interface of the stores that
// apply them.
//
// An [Algorithm] turns a [Limit], N requests per Unit, into a [Meter]. A Meter is pure
// arithmetic. From the [State] of one actor and a moment it computes what becomes of a
// request ([Meter.Peek]) and how the state changes ([Meter.Take], [Meter.Refund]). It has
// no clock, no lock and no memory, and it computes in whole numbers only.
//
// A [Store] keeps the states. It gets all the [Charge] values of a request at once and
// makes either all of them or none. Package memstore keeps states in the process, and
// package redisstore in Redis. Package storetest tests any other store.
//
// # Time
//
// A moment is an int64: whole microseconds since the Unix epoch. A span is an int64 of
// microseconds too. The same arithmetic must have the same results in Lua, whose numbers
// are doubles. Microseconds since 1970 fit a double exactly until the year 2255;
// nanoseconds do not.
//
// A Meter accepts a moment that is before the last one. Its state never moves back: the
// later of the given moment and the remembered moment counts.
package limit
