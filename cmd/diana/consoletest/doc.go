// SPDX-License-Identifier: MIT

// Package consoletest tests the console of diana serve in a real Chromium.
//
// The test starts two gateways that share a real Redis and follow a configuration in a real etcd, and sends
// requests to both. Then drive.mjs uses the console as an operator does: it looks, asks, changes, attacks, and
// takes the pictures of docs/console.md. "make console" runs it. Without -browser the test is skipped, because
// it needs Node, Chromium and the packages of package.json.
package consoletest
