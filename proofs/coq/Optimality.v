(* flash2 is optimal to the leading constant (theorems (c) and (d) together).

   flash2 with one key row and the most query rows that fit in M, nq = nk = N, against
   any execution es on the explicit memory with the same M:

     fused     flash2 (M - (4d + 3)) <= (M - 1) traffic es + 6 N^2 d + M N (4d + 1)
     unfused   flash2 (M - (4d + 3)) <= (M + 2 d^2 - 1) traffic es + 2 d^2 M
                                        + 6 N^2 d + M N (4d + 1)

   The terms beside the traffic are smaller than 4 N^2 d^2 by factors of d, of N d / M
   and of N^2 / M.  The first says that no fused schedule moves fewer words to leading
   order, the second that no unfused one does when M is much larger than d^2.

   Hypotheses: 0 < d, 4d + 3 <= M; es is valid and complete.  Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Tiles Traffic TrafficBounds Machine AttentionModel.
From iosim Require Import FusedBound UnfusedLargeMemory.

Theorem flash2_optimal_fused scores statistics N d M
    (es : list (event (attention true scores statistics d d (all_pairs N N)))) :
  0 < d -> 4 * d + 3 <= M ->
  valid M (init _) es -> complete true scores statistics d d (all_pairs N N) (run (init _) es) ->
  flash2_best N d M * (M - (4 * d + 3))
  <= (M - 1) * Machine.traffic es + 6 * N * N * d + M * N * (4 * d + 1).
Proof.
  intros Hd HM V C. destruct (flash2_best_tight N d M HM) as [_ U].
  pose proof (fused_bound_constant_4 scores statistics d N N M es Hd V C) as B. lia.
Qed.

Theorem flash2_optimal_unfused statistics N d M
    (es : list (event (attention false true statistics d d (all_pairs N N)))) :
  0 < d -> 4 * d + 3 <= M ->
  valid M (init _) es -> complete false true statistics d d (all_pairs N N) (run (init _) es) ->
  flash2_best N d M * (M - (4 * d + 3))
  <= (M + 2 * d * d - 1) * Machine.traffic es + 2 * d * d * M
     + 6 * N * N * d + M * N * (4 * d + 1).
Proof.
  intros Hd HM V C. destruct (flash2_best_tight N d M HM) as [_ U].
  pose proof (unfused_bound_large_memory statistics d N N M es Hd ltac:(lia) V C) as B. lia.
Qed.
