(* Theorem (d): the lower bound for fused attention, with its constant.

   A schedule is fused when every visible pair (i, j) is processed at a moment when
   q_i, k_j, v_j and the accumulator of row i are all in fast memory.  Then, with
   D = d + dv and M the words of fast memory,

     (visible pairs) D^2 <= (M - 1) traffic

   and without a mask  nq nk D^2 <= (M - 1) traffic, which for dv = d is
   traffic >= 4 nq nk d^2 / (M - 1); causal, nq = nk = N, it is 2 N (N + 1) d^2 / (M - 1).

   Hypotheses: 0 < dv, and the execution is valid and complete (Machine.v and
   AttentionModel.v; recomputation, spilling and any order are allowed, scores and
   statistics may be free or words like the others).  No range on M.
   Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting AttentionModel.
Import ListNotations.

Definition fused_targets d dv (p : nat * nat) : list (aword * aword) :=
  list_prod (q_words d (fst p) ++ a_words dv (fst p)) (k_words d (snd p) ++ v_words dv (snd p)).

Lemma fused_targets_shape d dv p :
  NoDup (fused_targets d dv p) /\ length (fused_targets d dv p) = (d + dv) * (d + dv).
Proof.
  unfold fused_targets, q_words, a_words, k_words, v_words. split.
  - apply NoDup_list_prod; apply NoDup_app;
      try (apply words_NoDup; congruence); intros w ? ?; in_words.
  - now rewrite prod_length, !app_length, !map_length, !seq_length.
Qed.

Lemma fused_targets_owner d dv p x y : In (x, y) (fused_targets d dv p) ->
  query_side x = true /\ query_side y = false /\ owner (x, y) = p.
Proof.
  destruct p as [i j]. intros H. apply in_prod_iff in H as [Hx Hy].
  unfold q_words, a_words, k_words, v_words in *. in_words; cbn; auto.
Qed.

Theorem fused_bound_masked scores statistics d dv vis M es :
  0 < dv -> NoDup vis ->
  valid M (init (attention true scores statistics d dv vis)) es ->
  complete true scores statistics d dv vis (run (init _) es) ->
  length vis * ((d + dv) * (d + dv)) <= (M - 1) * traffic es.
Proof.
  intros Hdv Hvis V C.
  destruct (meeting M es V) as (L & HL & _ & G).
  apply Nat.le_trans with (length L); [ | exact HL ].
  apply (count_targets query_side owner (fused_targets d dv)); trivial.
  - apply fused_targets_shape.
  - apply fused_targets_owner.
  - intros [i j] x y Hp H. apply in_prod_iff in H as [Hx Hy]. cbn in Hx, Hy.
    assert (K : forall c, c < dv -> (is_input x = true \/ x = Wa i c) -> met L x y).
    { intros c Hc Ix. apply (G (Wa i c) (Absorb i j)); trivial.
      - now apply C.
      - cbn. rewrite !in_app_iff in *. tauto.
      - cbn. rewrite !in_app_iff in *. tauto.
      - unfold q_words, a_words, k_words, v_words in *. intros ->. in_words.
      - left. unfold k_words, v_words in *. in_words; reflexivity. }
    clear Hy. unfold q_words, a_words in Hx. in_words.
    + apply (K 0); auto.
    + eapply K; eauto.
Qed.

Theorem fused_bound scores statistics d dv nq nk M es :
  0 < dv ->
  valid M (init (attention true scores statistics d dv (all_pairs nq nk))) es ->
  complete true scores statistics d dv (all_pairs nq nk) (run (init _) es) ->
  (nq * (d + dv)) * (nk * (d + dv)) <= (M - 1) * traffic es.
Proof.
  intros Hdv V C.
  pose proof (fused_bound_masked scores statistics d dv _ M es Hdv (all_pairs_NoDup nq nk) V C) as H.
  rewrite all_pairs_length in H. nia.
Qed.

Corollary fused_bound_constant_4 scores statistics d nq nk M es :
  0 < d ->
  valid M (init (attention true scores statistics d d (all_pairs nq nk))) es ->
  complete true scores statistics d d (all_pairs nq nk) (run (init _) es) ->
  4 * nq * nk * d * d <= (M - 1) * traffic es.
Proof.
  intros Hd V C. pose proof (fused_bound scores statistics d d nq nk M es Hd V C) as H.
  replace (d + d) with (2 * d) in H by lia. lia.
Qed.

(* Causal, nq = nk = N: 2 N (N + 1) d^2 <= (M - 1) traffic. *)
Corollary fused_bound_causal scores statistics d N M es :
  0 < d ->
  valid M (init (attention true scores statistics d d (causal_pairs N N))) es ->
  complete true scores statistics d d (causal_pairs N N) (run (init _) es) ->
  2 * N * (N + 1) * d * d <= (M - 1) * traffic es.
Proof.
  intros Hd V C.
  pose proof (fused_bound_masked scores statistics d d _ M es Hd (causal_pairs_NoDup N N) V C) as H.
  pose proof (causal_pairs_length N) as E. set (l := length _) in *. clearbody l.
  assert (2 * l * (2 * d * d) = N * (N + 1) * (2 * d * d)) by now rewrite E. lia.
Qed.
