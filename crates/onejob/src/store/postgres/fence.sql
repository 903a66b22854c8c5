-- Declares nodes dead whose lease has ended, for ever: renew.sql finds no row after this. The two wait
-- for each other at the row, and each looks at the lease again when it holds it.
UPDATE onejob.nodes
SET ended_at = onejob.now_ms()
WHERE ended_at IS NULL
    AND lease_until < onejob.now_ms()
    AND id <> $1::uuid
    -- After the database was away every lease has ended and every node is on its way back. Who has held
    -- its own lease for as long as theirs knows that they could have come.
    AND EXISTS (
        SELECT 1 FROM onejob.nodes AS here
        WHERE here.id = $1 AND here.ended_at IS NULL AND here.lease_until >= onejob.now_ms()
            AND here.held_since <= onejob.now_ms() - nodes.lease_ms
    )
RETURNING id, name
