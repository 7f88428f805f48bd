// SPDX-License-Identifier: MIT

// Package redisstore keeps counters in Redis, for all gateways together.
//
// # Batches
//
// One call to Redis is in flight at a time. Requests that arrive meanwhile go together in
// the next call, as a batch. Requests that charge the same counters by the same costs are
// one entry of the batch, with their number. The script decides the batch in order, each
// request all or nothing. Of n equal requests it allows as many as there is room for. So
// the result is the same as with one call for each, and a single request does not wait.
//
//	arrive   a  b b c b     a   c c c
//	call     |--a--|        |
//	               |--3b,c--|
//	                        |--a,3c--|
//
// # The way of a charge
//
// Read these files in this order, each from top to bottom:
//
//	take.go      Take, Peek, Debit, Refund and Settle: what a caller gets
//	refusals.go  a request that Redis has refused for a known time is not sent again
//	batcher.go   which batch a request joins, and when a batch is sent
//	batch.go     what a batch holds: equal requests are one group
//	call.go      sends a batch as one call of the script; keys.go names its keys, pack.go its numbers
//	driver.lua   decides the batch in Redis; script.go adds the algorithms of package limit
//	short.lua    does so for requests with one charge each, at a lower price; short.go packs them and reads the answer
//	answer.go    the outcome of each request in the script's answer
//
// Beside it:
//
//	health.go    requests ask Redis only while it answers in time
//	patience.go  how long a call may take, and how long calls took
//	debts.go     what a gateway allows without Redis is debited later
//	posting.go   a refund finds such a debit, wherever it is
//	receipts.go  each debit is made once, also if the answer to its call got lost
//	handover.go  another process gets the debts
//	remember.go  what Redis has lost, the gateways put back
//	leases.go    concurrency slots are held by leases
//	schedule.go  requests of a leaky bucket proceed at their scheduled times
//	resets.go    a reset reaches every gateway
//	heartbeat.go gateways tell Redis that they live
//	minutes.go   and what they have decided in each minute
//	cluster.go   in a Cluster there is a batcher for each tag in the keys
//	redis.go     the connection; dial.go opens it
//
// # Keys
//
// A key is the store's prefix and a hash of the counters' name and the actor, because an
// actor can be a secret, and of any length.
//
// Redis' clock decides. Every key has a time to live, rounded up, unless no time ends its state: the
// counters of a total stay until they are reset.
package redisstore
